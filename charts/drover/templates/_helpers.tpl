{{/* What drover is called in this release; the argument is the root. */}}
{{- define "drover.name" -}}
{{ .Values.nameOverride | default "drover" }}
{{- end }}

{{/* The labels of every object; the argument is the root. */}}
{{- define "drover.labels" -}}
app.kubernetes.io/name: {{ include "drover.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The name of a role's objects and of its service account; the argument is a list of the root and the role. */}}
{{- define "drover.roleName" -}}
{{ include "drover.name" (index . 0) }}-{{ index . 1 }}
{{- end }}

{{/* The user name of a role's service account; the argument is a list of the root and the role. */}}
{{- define "drover.user" -}}
system:serviceaccount:{{ (index . 0).Release.Namespace }}:{{ include "drover.roleName" . }}
{{- end }}

{{/* The objects of a file that `cargo xtask up` applies too, in the release's namespace and with the chart's labels. */}}
{{- define "drover.objects" -}}
{{- $root := index . 0 -}}
{{- range $text := splitList "\n---\n" ($root.Files.Get (index . 1)) }}
{{- $object := fromYaml $text }}
{{- $metadata := $object.metadata }}
{{- if hasKey $metadata "namespace" }}
{{- $_ := set $metadata "namespace" $root.Release.Namespace }}
{{- end }}
{{- $own := fromYaml (include "drover.labels" $root) }}
{{- $labels := dict }}
{{- range $key, $value := ($metadata.labels | default dict) }}
{{- if or $root.Values.rbac.aggregate (not (hasPrefix "rbac.authorization.k8s.io/aggregate-to-" $key)) }}
{{- $_ := set $labels $key $value }}
{{- end }}
{{- end }}
{{- if and $root.Values.rbac.aggregate $root.Values.rbac.volumesForAdmins (eq $metadata.name "drover-volume-admin") }}
{{- $_ := set $labels "rbac.authorization.k8s.io/aggregate-to-admin" "true" }}
{{- end }}
{{- $_ := set $metadata "labels" (merge $labels $own) }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
