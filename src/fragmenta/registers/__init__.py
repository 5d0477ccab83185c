"""What is an element, a word, a layout, a fragment?"""
