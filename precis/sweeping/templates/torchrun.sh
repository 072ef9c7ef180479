#!/bin/bash
{#- Values, by --values '{processes: 4}': processes for each training, which must be trainer.devices of the sweep.
    The -- keeps torchrun from reading the options of precis as its own. #}
# {{ comment(sweep) }}: {{ points | length }} points, one after another, by torchrun; the same script continues what is missing
export PYTHONSAFEPATH=1  # folders of the working folder do not come before the suite
failed=0
{%- for point in points %}

# {{ comment(point.label) }}
if precis sweep point {{ folder | sh }} --index {{ point.index }} --is_finished; then
  echo {{ ("finished before: " ~ point.label) | sh }}
elif
{%- for command in point.commands %}
  {% if command.trains %}torchrun --standalone --nproc-per-node {{ processes | default(1) | sh }} -m -- precis.command_line.cli {% else %}precis {% endif -%}
  {{ command.arguments | map("sh") | join(" ") }} &&
{%- endfor %}
  precis sweep point {{ folder | sh }} --index {{ point.index }} --mark_finished
then
  echo {{ ("finished: " ~ point.label) | sh }}
else
  echo {{ ("failed: " ~ point.label) | sh }} >&2
  failed=1
fi
{%- endfor %}
exit "$failed"
