"""Is a user's training right under several replicas?"""
