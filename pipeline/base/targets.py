"""The places that a pipeline can be compiled for. Standard library only: the command line's help names them."""

VERTEX, KUBEFLOW, KUBEFLOW_V2 = "vertex", "kubeflow", "kubeflow_v2"
# Those that run the pipeline's steps by themselves.
TARGETS = (VERTEX, KUBEFLOW, KUBEFLOW_V2)
# Those of a PipelineSpec: no drivers, stock resolvers only, no deadline of a step.
SPEC_TARGETS = (VERTEX, KUBEFLOW_V2)
# Its chief runs the pipeline.
TFJOB = "tfjob"
ALL_TARGETS = (*TARGETS, TFJOB)
