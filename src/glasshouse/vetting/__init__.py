"""The client's side: is a received model crafted to leak?"""
