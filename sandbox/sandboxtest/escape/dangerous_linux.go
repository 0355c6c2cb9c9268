package escape

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/holdfast-run/holdfast/sandbox"
)

// dangerous returns an error if the box left something in its directory that gives others root's rights.
func dangerous(spec sandbox.Spec) error {
	var errs []error
	err := filepath.WalkDir(spec.Workspace, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		n, xerr := syscall.Getxattr(path, "security.capability", nil)
		special := info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice) != 0 || info.Mode().Type() != fs.ModeSymlink && xerr == nil && n > 0
		foreign := strings.HasPrefix(d.Name(), "foreign")
		if special || foreign != (st.Uid == 1001 && st.Gid == 1001) || !foreign && st.Uid != 0 {
			errs = append(errs, fmt.Errorf("the box left the file %s with a dangerous owner, mode or capability: owner %d:%d, mode %s, capabilities of %d bytes", path, st.Uid, st.Gid, info.Mode(), n))
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}
