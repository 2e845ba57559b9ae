"""What an audit will do, and how long that takes."""
