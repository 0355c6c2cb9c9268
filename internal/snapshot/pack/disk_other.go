//go:build !linux

package pack

import "os"

// written is a file whose old content is overwritten.
type written struct{ *os.File }
