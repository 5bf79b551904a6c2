"""From text to ids and back: encoder.pyx applies merges to the chunks of a text, decoder.pyx turns ids into bytes."""
