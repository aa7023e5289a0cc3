"""Resumable measurements on a machine with a GPU or TPU: `fedwin bench --suite=accelerator`."""
