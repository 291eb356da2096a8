# Written by `holdfast iam render --provider azure --format terraform`.
# Change what principals may do in Holdfast, not here.

variable "storage_account_id" {
  type    = string
  default = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/data/providers/Microsoft.Storage/storageAccounts/acmelake"
}

# The object ids of the identities, by principal: api, pipeline, compactor-fastpath, compactor-antientropy, reader, collector.
variable "principal_ids" {
  type = map(string)
}

locals {
  holdfast_resource_group = split("/providers/", var.storage_account_id)[0]
  holdfast_container      = "${var.storage_account_id}/blobServices/default/containers/lake"
}

# The API writes events and locks. It cannot publish.
resource "azurerm_role_definition" "holdfast_api" {
  name              = "holdfast-lake-acme+prod-api"
  description       = "The API writes events and locks. It cannot publish."
  scope             = local.holdfast_resource_group
  assignable_scopes = [local.holdfast_resource_group]

  permissions {
    actions = []
    data_actions = [
      "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read",
      "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/write",
    ]
  }
}

resource "azurerm_role_assignment" "holdfast_api" {
  scope              = local.holdfast_container
  role_definition_id = azurerm_role_definition.holdfast_api.role_definition_resource_id
  principal_id       = var.principal_ids["api"]
  condition_version  = "2.0"
  condition          = "(!(ActionMatches{'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read'} AND NOT SubOperationMatches{'Blob.List'}) OR @Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:path] StringStartsWith 'hf/acme/prod/') AND (!(ActionMatches{'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read'} AND SubOperationMatches{'Blob.List'})) AND (!(ActionMatches{'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/write'}) OR @Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:path] StringStartsWith 'hf/acme/prod/ledger/' OR @Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:path] StringStartsWith 'hf/acme/prod/locks/')"
}

# A pipeline writes data sets, announces them to the ledger and takes locks. It cannot publish metadata.
resource "azurerm_role_definition" "holdfast_pipeline" {
  name              = "holdfast-lake-acme+prod-pipeline"
  description       = "A pipeline writes data sets, announces them to the ledger and takes locks. It cannot publish metadata."
  scope             = local.holdfast_resource_group
  assignable_scopes = [local.holdfast_resource_group]

  permissions {
    actions = []
    data_actions = [
      "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read",
      "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/write",
    ]
  }
}

resource "azurerm_role_assignment" "holdfast_pipeline" {
  scope              = local.holdfast_container
  role_definition_id = azurerm_role_definition.holdfast_pipeline.role_definition_resource_id
  principal_id       = var.principal_ids["pipeline"]
  condition_version  = "2.0"
  condition          = "(!(ActionMatches{'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read'} AND NOT SubOperationMatches{'Blob.List'}) OR @Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:path] StringStartsWith 'hf/acme/prod/') AND (!(ActionMatches{'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read'} AND SubOperationMatches{'Blob.List'})) AND (!(ActionMatches{'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/write'}) OR @Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:path] StringStartsWith 'hf/acme/prod/ledger/' OR @Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:path] StringStartsWith 'hf/acme/prod/locks/' OR @Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:path] StringStartsWith 'hf/acme/prod/datasets/')"
}

# The compactor that publishes. It is told what to fold and cannot list.
resource "azurerm_role_definition" "holdfast_compactor_fastpath" {
  name              = "holdfast-lake-acme+prod-compactor-fastpath"
  description       = "The compactor that publishes. It is told what to fold and cannot list."
  scope             = local.holdfast_resource_group
  assignable_scopes = [local.holdfast_resource_group]

  permissions {
    actions = []
    data_actions = [
      "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read",
      "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/write",
    ]
  }
}

resource "azurerm_role_assignment" "holdfast_compactor_fastpath" {
  scope              = local.holdfast_container
  role_definition_id = azurerm_role_definition.holdfast_compactor_fastpath.role_definition_resource_id
  principal_id       = var.principal_ids["compactor-fastpath"]
  condition_version  = "2.0"
  condition          = "(!(ActionMatches{'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read'} AND NOT SubOperationMatches{'Blob.List'}) OR @Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:path] StringStartsWith 'hf/acme/prod/') AND (!(ActionMatches{'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read'} AND SubOperationMatches{'Blob.List'})) AND (!(ActionMatches{'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/write'}) OR @Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:path] StringStartsWith 'hf/acme/prod/state/' OR @Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:path] StringStartsWith 'hf/acme/prod/l0/' OR @Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:path] StringStartsWith 'hf/acme/prod/manifests/')"
}

# The compactor's watchman. It finds events that were never folded and writes nothing.
resource "azurerm_role_definition" "holdfast_compactor_antientropy" {
  name              = "holdfast-lake-acme+prod-compactor-antientropy"
  description       = "The compactor's watchman. It finds events that were never folded and writes nothing."
  scope             = local.holdfast_resource_group
  assignable_scopes = [local.holdfast_resource_group]

  permissions {
    actions      = []
    data_actions = ["Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read"]
  }
}

resource "azurerm_role_assignment" "holdfast_compactor_antientropy" {
  scope              = local.holdfast_container
  role_definition_id = azurerm_role_definition.holdfast_compactor_antientropy.role_definition_resource_id
  principal_id       = var.principal_ids["compactor-antientropy"]
  condition_version  = "2.0"
  condition          = "(!(ActionMatches{'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read'} AND NOT SubOperationMatches{'Blob.List'}) OR @Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:path] StringStartsWith 'hf/acme/prod/state/' OR @Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:path] StringStartsWith 'hf/acme/prod/l0/' OR @Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:path] StringStartsWith 'hf/acme/prod/manifests/') AND (!(ActionMatches{'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read'} AND SubOperationMatches{'Blob.List'}) OR @Request[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:prefix] StringStartsWith 'hf/acme/prod/ledger/')"
}

# Readers read.
resource "azurerm_role_definition" "holdfast_reader" {
  name              = "holdfast-lake-acme+prod-reader"
  description       = "Readers read."
  scope             = local.holdfast_resource_group
  assignable_scopes = [local.holdfast_resource_group]

  permissions {
    actions      = []
    data_actions = ["Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read"]
  }
}

resource "azurerm_role_assignment" "holdfast_reader" {
  scope              = local.holdfast_container
  role_definition_id = azurerm_role_definition.holdfast_reader.role_definition_resource_id
  principal_id       = var.principal_ids["reader"]
  condition_version  = "2.0"
  condition          = "(!(ActionMatches{'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read'} AND NOT SubOperationMatches{'Blob.List'}) OR @Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:path] StringStartsWith 'hf/acme/prod/') AND (!(ActionMatches{'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read'} AND SubOperationMatches{'Blob.List'}))"
}

# The one who may delete.
resource "azurerm_role_definition" "holdfast_collector" {
  name              = "holdfast-lake-acme+prod-collector"
  description       = "The one who may delete."
  scope             = local.holdfast_resource_group
  assignable_scopes = [local.holdfast_resource_group]

  permissions {
    actions      = []
    data_actions = ["Microsoft.Storage/storageAccounts/blobServices/containers/blobs/delete"]
  }
}

resource "azurerm_role_assignment" "holdfast_collector" {
  scope              = local.holdfast_container
  role_definition_id = azurerm_role_definition.holdfast_collector.role_definition_resource_id
  principal_id       = var.principal_ids["collector"]
  condition_version  = "2.0"
  condition          = "(!(ActionMatches{'Microsoft.Storage/storageAccounts/blobServices/containers/blobs/delete'}) OR @Resource[Microsoft.Storage/storageAccounts/blobServices/containers/blobs:path] StringStartsWith 'hf/acme/prod/')"
}
