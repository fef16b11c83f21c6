"""Contract of writes: intake, changes, documents, refused rows."""
