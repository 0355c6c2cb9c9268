package main

import (
	"runtime"
	"runtime/debug"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version = ""

type versionCmd struct{}

// Run prints the version of the program, not of the server.
func (*versionCmd) Run(e *env) error {
	v := programVersion()
	return e.say(map[string]string{"version": v, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH},
		"holdfast %s (%s, %s/%s)", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// programVersion returns the release, or the commit of a build that has no release.
func programVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return "dev-" + s.Value[:12]
			}
		}
	}
	return "dev"
}
