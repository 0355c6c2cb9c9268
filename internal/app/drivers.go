package app

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/driver/host"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/boxd"
)

// Drivers returns the driver for each trust level. Trusted sessions always run on the host,
// untrusted ones never do. environ is the server's environment, from which host boxes get the
// variables that the allow table names. owner is the owner id of the data directory.
func Drivers(cfg config.Config, environ []string, owner string) (map[holdfast.Trust]sandbox.Driver, error) {
	runtimes, err := makeRuntimesDir(cfg)
	if err != nil {
		return nil, err
	}
	trusted, err := host.New(host.Config{
		Home: cfg.Data, Boxd: boxd.Local, Environ: environ, Now: time.Now, Owner: owner,
	})
	if err != nil {
		return nil, err
	}
	out := map[holdfast.Trust]sandbox.Driver{holdfast.Trusted: trusted}
	switch cfg.Driver {
	case "local":
		out[holdfast.Untrusted], err = local.New(local.Config{
			Home: cfg.Data, Boxd: boxd.Local, RootDir: cfg.RootDir, LimitsMode: cfg.Limits.Mode, Landlock: cfg.Landlock, Now: time.Now, Rand: rand.Reader, Owner: owner,
			ReadyUID: uint32(cfg.UIDBase) + 2*place.MaxNumber, ReadOnly: []string{runtimes + ":" + RuntimesInBox},
		})
		return out, err
	case "mem":
		d := mem.New(mem.Config{})
		out[holdfast.Untrusted], out[holdfast.Trusted] = d, d
	case "host":
	default:
		return nil, holdfast.Errorf(holdfast.KindInvalid, "serve", "%s is not a driver of this release", holdfast.Quote(cfg.Driver)).
			WithHint("use local, host or mem")
	}
	return out, nil
}

// RuntimesInBox is the directory of the installed agent CLIs as boxes see it.
const RuntimesInBox = "/opt/holdfast"

// RuntimesDir returns the directory in which a server's agent CLIs are installed.
func RuntimesDir(cfg config.Config) string { return filepath.Join(cfg.Data, "runtimes") }

// makeRuntimesDir makes the directory of agent CLIs, readable by users of boxes. It exists from
// the start, so that CLIs which are installed later appear in every box at once.
func makeRuntimesDir(cfg config.Config) (string, error) {
	dir := RuntimesDir(cfg)
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		return "", holdfast.Errorf(holdfast.KindUnavailable, "serve", "the directory of agent CLIs cannot be made: %w", err).
			WithHint("choose another data directory with --data DIR")
	}
	return dir, nil
}

// closeDrivers closes the drivers. Boxes go on.
func closeDrivers(drivers map[holdfast.Trust]sandbox.Driver) error {
	var errs []error
	for _, d := range drivers {
		if c, ok := d.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}
