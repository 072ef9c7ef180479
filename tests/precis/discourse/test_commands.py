from lightning_modules.metrics import calibration
from precis.discourse import discourse_commands as commands


def test_bins_of_the_command_are_those_of_the_metric():
    assert commands.BINS == calibration.BINS
