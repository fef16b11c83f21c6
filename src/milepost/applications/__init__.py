"""Routes that come with Milepost, built on its public surface only, as a user would."""
