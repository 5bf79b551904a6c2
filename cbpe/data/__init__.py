"""The merges of OpenAI's encodings, which the package ships: *.bin, read by merges.py, made by
scripts/make_openai_data.py.
"""
