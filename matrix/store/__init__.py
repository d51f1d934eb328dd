"""The run folder: written so that nothing is lost, read so that anything can be judged later."""
