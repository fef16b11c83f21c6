"""The flow of an item, file by file in the order it meets them:
intake → claim → execute → settle → relay → resend; operate (people), observe (eyes)."""
