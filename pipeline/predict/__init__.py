"""A model predicts files of images, tables of their names, and TFRecords of tf.Examples."""
