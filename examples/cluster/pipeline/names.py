LAYER = "of_my_own"
