# Written by `holdfast iam render --provider aws --format terraform`.
# Change what principals may do in Holdfast, not here.

# The API writes events and locks. It cannot publish.
data "aws_iam_policy_document" "holdfast_api" {
  statement {
    sid       = "Read"
    effect    = "Allow"
    actions   = ["s3:GetObject"]
    resources = ["arn:aws:s3:::lake/hf/acme/prod/*"]
  }

  statement {
    sid     = "Write"
    effect  = "Allow"
    actions = ["s3:PutObject"]
    resources = [
      "arn:aws:s3:::lake/hf/acme/prod/ledger/*",
      "arn:aws:s3:::lake/hf/acme/prod/locks/*",
    ]
  }

  statement {
    sid       = "TellMissing"
    effect    = "Allow"
    actions   = ["s3:ListBucket"]
    resources = ["arn:aws:s3:::lake"]
  }
}

resource "aws_iam_policy" "holdfast_api" {
  name        = "holdfast-acme+prod-api"
  description = "The API writes events and locks. It cannot publish."
  policy      = data.aws_iam_policy_document.holdfast_api.json
}

# A pipeline writes data sets, announces them to the ledger and takes locks. It cannot publish metadata.
data "aws_iam_policy_document" "holdfast_pipeline" {
  statement {
    sid       = "Read"
    effect    = "Allow"
    actions   = ["s3:GetObject"]
    resources = ["arn:aws:s3:::lake/hf/acme/prod/*"]
  }

  statement {
    sid     = "Write"
    effect  = "Allow"
    actions = ["s3:PutObject"]
    resources = [
      "arn:aws:s3:::lake/hf/acme/prod/ledger/*",
      "arn:aws:s3:::lake/hf/acme/prod/locks/*",
      "arn:aws:s3:::lake/hf/acme/prod/datasets/*",
    ]
  }

  statement {
    sid       = "GiveUpUploads"
    effect    = "Allow"
    actions   = ["s3:AbortMultipartUpload"]
    resources = ["arn:aws:s3:::lake/hf/acme/prod/datasets/*"]
  }

  statement {
    sid       = "TellMissing"
    effect    = "Allow"
    actions   = ["s3:ListBucket"]
    resources = ["arn:aws:s3:::lake"]
  }
}

resource "aws_iam_policy" "holdfast_pipeline" {
  name        = "holdfast-acme+prod-pipeline"
  description = "A pipeline writes data sets, announces them to the ledger and takes locks. It cannot publish metadata."
  policy      = data.aws_iam_policy_document.holdfast_pipeline.json
}

# The compactor that publishes. It is told what to fold and cannot list.
data "aws_iam_policy_document" "holdfast_compactor_fastpath" {
  statement {
    sid       = "Read"
    effect    = "Allow"
    actions   = ["s3:GetObject"]
    resources = ["arn:aws:s3:::lake/hf/acme/prod/*"]
  }

  statement {
    sid     = "Write"
    effect  = "Allow"
    actions = ["s3:PutObject"]
    resources = [
      "arn:aws:s3:::lake/hf/acme/prod/state/*",
      "arn:aws:s3:::lake/hf/acme/prod/l0/*",
      "arn:aws:s3:::lake/hf/acme/prod/manifests/*",
    ]
  }

  statement {
    sid     = "GiveUpUploads"
    effect  = "Allow"
    actions = ["s3:AbortMultipartUpload"]
    resources = [
      "arn:aws:s3:::lake/hf/acme/prod/state/*",
      "arn:aws:s3:::lake/hf/acme/prod/l0/*",
    ]
  }

  statement {
    sid       = "TellMissing"
    effect    = "Allow"
    actions   = ["s3:ListBucket"]
    resources = ["arn:aws:s3:::lake"]
  }
}

resource "aws_iam_policy" "holdfast_compactor_fastpath" {
  name        = "holdfast-acme+prod-compactor-fastpath"
  description = "The compactor that publishes. It is told what to fold and cannot list."
  policy      = data.aws_iam_policy_document.holdfast_compactor_fastpath.json
}

# The compactor's watchman. It finds events that were never folded and writes nothing.
data "aws_iam_policy_document" "holdfast_compactor_antientropy" {
  statement {
    sid     = "Read"
    effect  = "Allow"
    actions = ["s3:GetObject"]
    resources = [
      "arn:aws:s3:::lake/hf/acme/prod/state/*",
      "arn:aws:s3:::lake/hf/acme/prod/l0/*",
      "arn:aws:s3:::lake/hf/acme/prod/manifests/*",
    ]
  }

  statement {
    sid       = "TellMissing"
    effect    = "Allow"
    actions   = ["s3:ListBucket"]
    resources = ["arn:aws:s3:::lake"]
  }
}

resource "aws_iam_policy" "holdfast_compactor_antientropy" {
  name        = "holdfast-acme+prod-compactor-antientropy"
  description = "The compactor's watchman. It finds events that were never folded and writes nothing."
  policy      = data.aws_iam_policy_document.holdfast_compactor_antientropy.json
}

# Readers read.
data "aws_iam_policy_document" "holdfast_reader" {
  statement {
    sid       = "Read"
    effect    = "Allow"
    actions   = ["s3:GetObject"]
    resources = ["arn:aws:s3:::lake/hf/acme/prod/*"]
  }

  statement {
    sid       = "TellMissing"
    effect    = "Allow"
    actions   = ["s3:ListBucket"]
    resources = ["arn:aws:s3:::lake"]
  }
}

resource "aws_iam_policy" "holdfast_reader" {
  name        = "holdfast-acme+prod-reader"
  description = "Readers read."
  policy      = data.aws_iam_policy_document.holdfast_reader.json
}

# The one who may delete.
data "aws_iam_policy_document" "holdfast_collector" {
  statement {
    sid       = "Delete"
    effect    = "Allow"
    actions   = ["s3:DeleteObject"]
    resources = ["arn:aws:s3:::lake/hf/acme/prod/*"]
  }

  statement {
    sid       = "TellMissing"
    effect    = "Allow"
    actions   = ["s3:ListBucket"]
    resources = ["arn:aws:s3:::lake"]
  }
}

resource "aws_iam_policy" "holdfast_collector" {
  name        = "holdfast-acme+prod-collector"
  description = "The one who may delete."
  policy      = data.aws_iam_policy_document.holdfast_collector.json
}

# Attach each to the role that its principal runs as.
output "holdfast_policy_arns" {
  value = {
    "api" = aws_iam_policy.holdfast_api.arn
    "pipeline" = aws_iam_policy.holdfast_pipeline.arn
    "compactor-fastpath" = aws_iam_policy.holdfast_compactor_fastpath.arn
    "compactor-antientropy" = aws_iam_policy.holdfast_compactor_antientropy.arn
    "reader" = aws_iam_policy.holdfast_reader.arn
    "collector" = aws_iam_policy.holdfast_collector.arn
  }
}
