"""`precis doctor`: what is installed and what is missing."""

import json
from importlib import metadata

from precis.housekeeping.doctor import check_requirements


def test_the_report_names_versions_devices_caches_and_the_parser(precis, cache):
    done = precis("doctor", "--json")
    report = json.loads(done.out)
    assert report["versions"]["torch"] == metadata.version("torch")
    assert "CPU core" in report["devices"][0] and str(cache) in report["caches"]
    assert "default because" in report["parser"] and "minilm" in report["extras"]
    assert not report["problems"] and done.status == 0
    table = precis("doctor").out
    assert metadata.version("torch") in table and "everything that is required is installed" in table


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, precis):
    lines = ["torch>=999", "nothing-of-this-name>=1", 'nor-of-this; extra == "minilm"', 'rich; extra == "lora"']
    monkeypatch.setattr(metadata, "requires", lambda _: lines)
    required, extras = check_requirements()
    assert set(required) == {"torch", "nothing-of-this-name"}
    assert extras["minilm"] == "lacks nor-of-this: pip install 'precis-suite[minilm]'"
    assert extras["lora"] == "installed"
    done = precis("doctor", "--json")
    assert done.status == 1 and len(json.loads(done.out)["problems"]) == 2
