"""What is to be measured on a machine with a GPU or TPU, in pieces that resume: `fedwin bench --suite=accelerator`."""
