# {{ comment(sweep) }}: {{ points | length }} points as jobs of a Ray cluster, one for each, by its REST interface
#
#   RAY_ADDRESS=http://HEAD_NODE:8265 sh THIS_FILE
#
# The nodes have the suite and share the folder with this machine; a relative path is relative to where `ray start` ran. Values,
# by --values '{gpus: 1, cpus: 4}': gpus and cpus that each job reserves. `ray job stop JOB` lets a run save within two minutes.
{% for point in points %}
{%- set entrypoint = "precis sweep point " ~ (folder | sh) ~ " --index " ~ point.index -%}
{%- set job = {"entrypoint": entrypoint, "entrypoint_num_gpus": gpus | default(1), "entrypoint_num_cpus": cpus | default(4), "runtime_env": {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "120"}}} -%}
curl --fail-with-body --silent --show-error "$RAY_ADDRESS/api/jobs/" --header 'Content-Type: application/json' --data {{ job | tojson | sh }}
{% endfor %}
