//go:build !linux

package boots

import "errors"

// Here returns an error: only Linux has a boot id.
func Here(string) (string, error) { return "", errors.ErrUnsupported }
