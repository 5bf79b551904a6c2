"""GPT-4's merges, which the package ships: cl100k.bin, read by cl100k.py and made by scripts/make_gpt4_data.py."""
