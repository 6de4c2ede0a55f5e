"""A hook that prints which variables have differing copies at the end of a training under several replicas."""

import json

import numpy as np
import tensorflow as tf


class Copies(tf.train.SessionRunHook):
    def begin(self):
        self.variables = {each.name: [tf.identity(copy) for copy in each.values] for each in tf.global_variables()}

    def end(self, session):
        values = session.run(self.variables)
        apart = [name for name, copies in values.items() if any(not np.array_equal(copies[0], each) for each in copies)]
        print("copies:", json.dumps([len(values), len(values["global_step:0"]), apart]))
