"""Controls that handlers use: pauses for partners that ask for fewer requests, and the check of a claim before DSpace is changed."""
