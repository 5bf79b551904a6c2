"""Data that the package ships: GPT-4's merges, in cl100k.bin, read by cl100k.py and made by scripts/make_gpt4_data.py."""
