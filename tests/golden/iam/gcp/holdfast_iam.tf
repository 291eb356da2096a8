# Written by `holdfast iam render --provider gcp --format terraform`.
# Change what principals may do in Holdfast, not here.

variable "project" {
  type    = string
  default = "acme-data"
}

# Who the principals are, as in "serviceAccount:NAME@...", by their names: api, pipeline, compactor-fastpath, compactor-antientropy, reader, collector.
variable "members" {
  type = map(string)
}

# The roles are the project's. For its second workspace say false.
variable "create_roles" {
  type    = bool
  default = true
}

resource "google_project_iam_custom_role" "holdfast_read" {
  count       = var.create_roles ? 1 : 0
  project     = var.project
  role_id     = "holdfastRead"
  title       = "Holdfast: read objects"
  permissions = ["storage.objects.get"]
}

resource "google_project_iam_custom_role" "holdfast_create" {
  count       = var.create_roles ? 1 : 0
  project     = var.project
  role_id     = "holdfastCreate"
  title       = "Holdfast: create objects"
  permissions = ["storage.objects.create"]
}

resource "google_project_iam_custom_role" "holdfast_replace" {
  count   = var.create_roles ? 1 : 0
  project = var.project
  role_id = "holdfastReplace"
  title   = "Holdfast: create and replace objects"
  permissions = [
    "storage.objects.create",
    "storage.objects.delete",
  ]
}

resource "google_project_iam_custom_role" "holdfast_upload" {
  count   = var.create_roles ? 1 : 0
  project = var.project
  role_id = "holdfastUpload"
  title   = "Holdfast: create objects in parts"
  permissions = [
    "storage.multipartUploads.abort",
    "storage.multipartUploads.create",
    "storage.objects.create",
  ]
}

resource "google_project_iam_custom_role" "holdfast_list" {
  count       = var.create_roles ? 1 : 0
  project     = var.project
  role_id     = "holdfastList"
  title       = "Holdfast: list objects"
  permissions = ["storage.objects.list"]
}

resource "google_project_iam_custom_role" "holdfast_delete" {
  count       = var.create_roles ? 1 : 0
  project     = var.project
  role_id     = "holdfastDelete"
  title       = "Holdfast: delete objects"
  permissions = ["storage.objects.delete"]
}

resource "google_storage_managed_folder" "holdfast_ledger" {
  bucket = "lake"
  name   = "hf/acme/prod/ledger/"
}

# The API writes events and locks. It cannot publish.
resource "google_storage_bucket_iam_member" "holdfast_api_read" {
  bucket     = "lake"
  role       = "projects/${var.project}/roles/holdfastRead"
  member     = var.members["api"]
  depends_on = [google_project_iam_custom_role.holdfast_read]

  condition {
    title       = "holdfast acme+prod api read"
    description = "The API writes events and locks. It cannot publish."
    expression  = "resource.type == \"storage.googleapis.com/Object\" && resource.name.startsWith(\"projects/_/buckets/lake/objects/hf/acme/prod/\")"
  }
}

resource "google_storage_bucket_iam_member" "holdfast_api_create" {
  bucket     = "lake"
  role       = "projects/${var.project}/roles/holdfastCreate"
  member     = var.members["api"]
  depends_on = [google_project_iam_custom_role.holdfast_create]

  condition {
    title       = "holdfast acme+prod api create"
    description = "The API writes events and locks. It cannot publish."
    expression  = "resource.type == \"storage.googleapis.com/Object\" && resource.name.startsWith(\"projects/_/buckets/lake/objects/hf/acme/prod/ledger/\")"
  }
}

resource "google_storage_bucket_iam_member" "holdfast_api_replace" {
  bucket     = "lake"
  role       = "projects/${var.project}/roles/holdfastReplace"
  member     = var.members["api"]
  depends_on = [google_project_iam_custom_role.holdfast_replace]

  condition {
    title       = "holdfast acme+prod api replace"
    description = "The API writes events and locks. It cannot publish."
    expression  = "resource.type == \"storage.googleapis.com/Object\" && resource.name.startsWith(\"projects/_/buckets/lake/objects/hf/acme/prod/locks/\")"
  }
}

# A pipeline writes data sets, announces them to the ledger and takes locks. It cannot publish metadata.
resource "google_storage_bucket_iam_member" "holdfast_pipeline_read" {
  bucket     = "lake"
  role       = "projects/${var.project}/roles/holdfastRead"
  member     = var.members["pipeline"]
  depends_on = [google_project_iam_custom_role.holdfast_read]

  condition {
    title       = "holdfast acme+prod pipeline read"
    description = "A pipeline writes data sets, announces them to the ledger and takes locks. It cannot publish metadata."
    expression  = "resource.type == \"storage.googleapis.com/Object\" && resource.name.startsWith(\"projects/_/buckets/lake/objects/hf/acme/prod/\")"
  }
}

resource "google_storage_bucket_iam_member" "holdfast_pipeline_create" {
  bucket     = "lake"
  role       = "projects/${var.project}/roles/holdfastCreate"
  member     = var.members["pipeline"]
  depends_on = [google_project_iam_custom_role.holdfast_create]

  condition {
    title       = "holdfast acme+prod pipeline create"
    description = "A pipeline writes data sets, announces them to the ledger and takes locks. It cannot publish metadata."
    expression  = "resource.type == \"storage.googleapis.com/Object\" && resource.name.startsWith(\"projects/_/buckets/lake/objects/hf/acme/prod/ledger/\")"
  }
}

resource "google_storage_bucket_iam_member" "holdfast_pipeline_replace" {
  bucket     = "lake"
  role       = "projects/${var.project}/roles/holdfastReplace"
  member     = var.members["pipeline"]
  depends_on = [google_project_iam_custom_role.holdfast_replace]

  condition {
    title       = "holdfast acme+prod pipeline replace"
    description = "A pipeline writes data sets, announces them to the ledger and takes locks. It cannot publish metadata."
    expression  = "resource.type == \"storage.googleapis.com/Object\" && (resource.name.startsWith(\"projects/_/buckets/lake/objects/hf/acme/prod/locks/\") || resource.name.startsWith(\"projects/_/buckets/lake/objects/hf/acme/prod/datasets/\"))"
  }
}

resource "google_storage_bucket_iam_member" "holdfast_pipeline_upload" {
  bucket     = "lake"
  role       = "projects/${var.project}/roles/holdfastUpload"
  member     = var.members["pipeline"]
  depends_on = [google_project_iam_custom_role.holdfast_upload]

  condition {
    title       = "holdfast acme+prod pipeline upload"
    description = "A pipeline writes data sets, announces them to the ledger and takes locks. It cannot publish metadata."
    expression  = "resource.type == \"storage.googleapis.com/Object\" && resource.name.startsWith(\"projects/_/buckets/lake/objects/hf/acme/prod/datasets/\")"
  }
}

# The compactor that publishes. It is told what to fold and cannot list.
resource "google_storage_bucket_iam_member" "holdfast_compactor_fastpath_read" {
  bucket     = "lake"
  role       = "projects/${var.project}/roles/holdfastRead"
  member     = var.members["compactor-fastpath"]
  depends_on = [google_project_iam_custom_role.holdfast_read]

  condition {
    title       = "holdfast acme+prod compactor-fastpath read"
    description = "The compactor that publishes. It is told what to fold and cannot list."
    expression  = "resource.type == \"storage.googleapis.com/Object\" && resource.name.startsWith(\"projects/_/buckets/lake/objects/hf/acme/prod/\")"
  }
}

resource "google_storage_bucket_iam_member" "holdfast_compactor_fastpath_replace" {
  bucket     = "lake"
  role       = "projects/${var.project}/roles/holdfastReplace"
  member     = var.members["compactor-fastpath"]
  depends_on = [google_project_iam_custom_role.holdfast_replace]

  condition {
    title       = "holdfast acme+prod compactor-fastpath replace"
    description = "The compactor that publishes. It is told what to fold and cannot list."
    expression  = "resource.type == \"storage.googleapis.com/Object\" && resource.name.startsWith(\"projects/_/buckets/lake/objects/hf/acme/prod/manifests/\")"
  }
}

resource "google_storage_bucket_iam_member" "holdfast_compactor_fastpath_upload" {
  bucket     = "lake"
  role       = "projects/${var.project}/roles/holdfastUpload"
  member     = var.members["compactor-fastpath"]
  depends_on = [google_project_iam_custom_role.holdfast_upload]

  condition {
    title       = "holdfast acme+prod compactor-fastpath upload"
    description = "The compactor that publishes. It is told what to fold and cannot list."
    expression  = "resource.type == \"storage.googleapis.com/Object\" && (resource.name.startsWith(\"projects/_/buckets/lake/objects/hf/acme/prod/state/\") || resource.name.startsWith(\"projects/_/buckets/lake/objects/hf/acme/prod/l0/\"))"
  }
}

# The compactor's watchman. It finds events that were never folded and writes nothing.
resource "google_storage_bucket_iam_member" "holdfast_compactor_antientropy_read" {
  bucket     = "lake"
  role       = "projects/${var.project}/roles/holdfastRead"
  member     = var.members["compactor-antientropy"]
  depends_on = [google_project_iam_custom_role.holdfast_read]

  condition {
    title       = "holdfast acme+prod compactor-antientropy read"
    description = "The compactor's watchman. It finds events that were never folded and writes nothing."
    expression  = "resource.type == \"storage.googleapis.com/Object\" && (resource.name.startsWith(\"projects/_/buckets/lake/objects/hf/acme/prod/state/\") || resource.name.startsWith(\"projects/_/buckets/lake/objects/hf/acme/prod/l0/\") || resource.name.startsWith(\"projects/_/buckets/lake/objects/hf/acme/prod/manifests/\"))"
  }
}

resource "google_storage_managed_folder_iam_member" "holdfast_compactor_antientropy_list" {
  bucket         = google_storage_managed_folder.holdfast_ledger.bucket
  managed_folder = google_storage_managed_folder.holdfast_ledger.name
  role           = "projects/${var.project}/roles/holdfastList"
  member         = var.members["compactor-antientropy"]
  depends_on     = [google_project_iam_custom_role.holdfast_list]
}

# Readers read.
resource "google_storage_bucket_iam_member" "holdfast_reader_read" {
  bucket     = "lake"
  role       = "projects/${var.project}/roles/holdfastRead"
  member     = var.members["reader"]
  depends_on = [google_project_iam_custom_role.holdfast_read]

  condition {
    title       = "holdfast acme+prod reader read"
    description = "Readers read."
    expression  = "resource.type == \"storage.googleapis.com/Object\" && resource.name.startsWith(\"projects/_/buckets/lake/objects/hf/acme/prod/\")"
  }
}

# The one who may delete.
resource "google_storage_bucket_iam_member" "holdfast_collector_delete" {
  bucket     = "lake"
  role       = "projects/${var.project}/roles/holdfastDelete"
  member     = var.members["collector"]
  depends_on = [google_project_iam_custom_role.holdfast_delete]

  condition {
    title       = "holdfast acme+prod collector delete"
    description = "The one who may delete."
    expression  = "resource.type == \"storage.googleapis.com/Object\" && resource.name.startsWith(\"projects/_/buckets/lake/objects/hf/acme/prod/\")"
  }
}
