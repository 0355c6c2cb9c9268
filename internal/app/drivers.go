package app

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/driver/host"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/boxd"
)

// Drivers are the drivers that a program links, by the names that the setting `driver` gives them.
// The program's main function passes them, so that a driver for tests is linked into tests only.
type Drivers []NamedDriver

// NamedDriver is one entry of Drivers.
type NamedDriver struct {
	Name string
	// Open returns the driver for each trust level; without an entry, a level has no boxes. environ
	// is the server's environment, from which host boxes get the variables that the allow table
	// names. owner is the owner id of the data directory.
	Open func(cfg config.Config, environ []string, owner string) (map[holdfast.Trust]sandbox.Driver, error)
}

// ReleasedDrivers returns the drivers of the released program.
func ReleasedDrivers() Drivers {
	return Drivers{{"local", openLocal}, {"host", openHost}}
}

// Names returns the names of the drivers.
func (d Drivers) Names() []string {
	var names []string
	for _, one := range d {
		names = append(names, one.Name)
	}
	return names
}

// find returns the driver with that name. An unknown name is an invalid setting.
func (d Drivers) find(name string) (NamedDriver, error) {
	for _, one := range d {
		if one.Name == name {
			return one, nil
		}
	}
	return NamedDriver{}, holdfast.Errorf(holdfast.KindInvalid, "config", "driver: %s is not a driver that can be chosen", holdfast.Quote(name)).
		WithHint("use %s", strings.Join(d.Names(), " or "))
}

// openHost returns the driver of trusted sessions, which always run on the host. Untrusted ones
// never do.
func openHost(cfg config.Config, environ []string, owner string) (map[holdfast.Trust]sandbox.Driver, error) {
	trusted, err := host.New(host.Config{
		Home: cfg.Data, Boxd: boxd.Local, Environ: environ, Now: time.Now, Owner: owner,
		Shown: []string{RuntimesDir(cfg)},
	})
	return map[holdfast.Trust]sandbox.Driver{holdfast.Trusted: trusted}, err
}

// openLocal returns the driver of untrusted sessions, which isolates them on this machine, and the driver of trusted sessions.
func openLocal(cfg config.Config, environ []string, owner string) (map[holdfast.Trust]sandbox.Driver, error) {
	out, err := openHost(cfg, environ, owner)
	if err != nil {
		return nil, err
	}
	out[holdfast.Untrusted], err = local.New(local.Config{
		Home: cfg.Data, Boxd: boxd.Local, RootDir: cfg.Mounted.Root, LimitsMode: cfg.Limits.Mode, Landlock: cfg.Landlock, Now: time.Now, Rand: rand.Reader, Owner: owner,
		RootTrees: cfg.Root.Trees == config.True,
		ReadyUID:  uint32(cfg.Root.UIDBase) + place.ReadyUIDs, ReadOnly: []string{RuntimesDir(cfg) + ":" + RuntimesInBox},
	})
	return out, err
}

// RuntimesInBox is the directory of the installed agent CLIs as boxes see it.
const RuntimesInBox = "/opt/holdfast"

// RuntimesDir returns the directory in which a server's agent CLIs are installed.
func RuntimesDir(cfg config.Config) string { return filepath.Join(cfg.Data, "runtimes") }

// runtimesFor returns the directory of the agent CLIs as sessions with a trust see it.
func runtimesFor(cfg config.Config, trust holdfast.Trust) string {
	if trust == holdfast.Trusted {
		return RuntimesDir(cfg)
	}
	return RuntimesInBox
}

// makeRuntimesDir makes the directory of agent CLIs, readable by users of boxes. It exists from
// the start, so that CLIs which are installed later appear in every box at once.
func makeRuntimesDir(cfg config.Config) error {
	dir := RuntimesDir(cfg)
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "serve", "the directory of agent CLIs cannot be made: %w", err).
			WithHint("choose another data directory with --data DIR")
	}
	return nil
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
