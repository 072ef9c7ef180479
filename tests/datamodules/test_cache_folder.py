"""The folder of caches."""

from datamodules.cache_folder import default_cache


def test_the_default_cache_is_for_its_user_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("PRECIS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = default_cache()
    assert folder == tmp_path / "cache" / "precis" and folder.stat().st_mode & 0o777 == 0o700


def test_a_shared_cache_is_named_and_not_created(tmp_path, monkeypatch):
    monkeypatch.setenv("PRECIS_CACHE", str(tmp_path / "shared"))
    assert default_cache() == tmp_path / "shared" and not (tmp_path / "shared").exists()
