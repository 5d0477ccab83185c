"""What does PTX text say?"""
