module drover.dev/tools/requests

go 1.26.0
