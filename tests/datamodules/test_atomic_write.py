import pytest

from datamodules.atomic_write import atomic_file, atomic_write


def test_new_content_replaces_the_old(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("before")
    atomic_write(path, "äfter\n")
    assert path.read_bytes() == "äfter\n".encode()
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_writer_changes_nothing(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("before")
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as file:
        file.write("half")
        raise KeyboardInterrupt
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
