"""Cost on AWS: a model of the requests of an item, at list prices."""
