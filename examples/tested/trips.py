"""A preprocessing_fn, and a module file with a trainer_fn."""

import tensorflow as tf
import tensorflow_transform as tft


def preprocessing_fn(inputs):
    """Scales the miles, and numbers the companies."""
    miles = inputs["miles"]
    return {
        "miles": (miles - tft.mean(miles)) / tft.var(miles),
        "company": tft.compute_and_apply_vocabulary(inputs["company"], num_oov_buckets=1),
        "tipped": inputs["tipped"],
    }


def trainer_fn(fn_args, schema):
    """Returns what TFX's Trainer trains."""
    transformed = tft.TFTransformOutput(fn_args.transform_output)
    raw = transformed.raw_feature_spec()

    def data(files):
        records = tf.data.TFRecordDataset(tf.io.gfile.glob(files), "GZIP").repeat().batch(8)
        features = records.map(lambda each: transformed.transform_raw_features(tf.io.parse_example(each, raw)))
        return features.map(lambda each: (each, each.pop("tipped")))

    def receiver():
        asked = {name: each for name, each in raw.items() if name != "tipped"}
        given = tf.estimator.export.build_parsing_serving_input_receiver_fn(asked)()
        return given._replace(features=transformed.transform_raw_features(given.features))

    company = tf.feature_column.categorical_column_with_identity("company", 4)
    columns = [tf.feature_column.numeric_column("miles"), tf.feature_column.indicator_column(company)]
    return {
        "estimator": tf.estimator.DNNClassifier([8], columns, fn_args.serving_model_dir),
        "train_spec": tf.estimator.TrainSpec(lambda: data(fn_args.train_files), max_steps=fn_args.train_steps),
        "eval_spec": tf.estimator.EvalSpec(lambda: data(fn_args.eval_files), steps=fn_args.eval_steps),
        "eval_input_receiver_fn": receiver,
    }
