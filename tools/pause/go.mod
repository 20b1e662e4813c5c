module drover.dev/tools/pause

go 1.26.0
