//go:build !linux

package escape

import (
	"errors"

	"github.com/holdfast-run/holdfast/sandbox"
)

func dangerous(sandbox.Spec) error { return errors.ErrUnsupported }
