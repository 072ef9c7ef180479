"""Run folders from checkpoints that other projects have released."""
