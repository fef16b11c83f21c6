"""Applications that come with Milepost, written on its public surface alone, as a user would write them."""
