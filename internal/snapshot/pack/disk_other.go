//go:build !linux

package pack

import "os"

// written is a file whose old content is overwritten in place, such as a spare file.
type written struct{ *os.File }
