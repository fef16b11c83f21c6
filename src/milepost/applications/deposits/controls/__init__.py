"""Controls that handlers use: pauses for partners, errors that operators put right, and the check of a claim before DSpace is changed."""
