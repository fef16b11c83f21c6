"""Contract of acts: operators' verbs, controls, partial answers, renamed stages."""
