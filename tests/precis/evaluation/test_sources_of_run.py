import yaml

from precis.evaluation.sources import sources_of_run


def test_documents_beyond_the_limit_of_the_run_are_found(run_folder):
    every = sources_of_run(str(run_folder), "test")
    path = run_folder / "config.yaml"
    config = yaml.safe_load(path.read_text())
    config["data"]["init_args"]["max_eval"] = 1
    path.write_text(yaml.safe_dump(config))
    assert len(every) > 1 and sources_of_run(str(run_folder), "test") == every
