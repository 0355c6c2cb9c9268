package check

import "strings"

// meansMore reports whether setting a variable to a value may make programs load code or change the meaning of a
// command line. A value that contains a dollar sign is treated as not known.
func meansMore(name, value string) bool {
	switch name {
	case "PATH", "IFS", "ENV", "HOME", "CDPATH", "SHELLOPTS", "BASHOPTS", "GLOBIGNORE", "PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS4",
		"BROWSER", "LESSOPEN", "LESSCLOSE", "SHELL", "EXECIGNORE", "HISTFILE", "VISUAL",
		"PERL5OPT", "PERL5LIB", "PERL5DB", "RUBYOPT", "RUBYLIB", "NODE_OPTIONS", "NODE_PATH", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS",
		"RSYNC_RSH", "TAR_OPTIONS", "MAKEFLAGS", "MAKEFILES", "MAKESHELL", "GCONV_PATH", "SUDO_ASKPASS", "SSH_ASKPASS", "RUSTC", "RUSTC_WRAPPER", "LUA_INIT",
		"AWKPATH", "AWKLIBPATH", "FPATH", "ZDOTDIR", "fpath", "path", "POSIXLY_CORRECT", "INPUTRC", "TERMINFO", "MANPATH", "MAILCAPS",
		"VIMINIT", "EXINIT", "GVIMINIT", "MYVIMRC", "FZF_DEFAULT_COMMAND", "OPENSSL_CONF", "OPENSSL_MODULES", "GCC_EXEC_PREFIX", "COMPILER_PATH",
		"ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS", "XDG_CONFIG_HOME", "CVS_RSH", "SVN_SSH", "LESSKEYIN", "LESSKEY":
		return true
	case "LESS", "MORE":
		return strings.ContainsAny(value, "+!|$")
	case "GOFLAGS":
		return strings.Contains(value, "exec") || strings.Contains(value, "tool") || strings.Contains(value, "$")
	}
	if strings.HasSuffix(name, "EDITOR") || strings.HasSuffix(name, "PAGER") || name == "FCEDIT" {
		return true
	}
	for _, p := range []string{"LD_", "DYLD_", "BASH_", "GIT_", "PYTHON", "MALLOC_", "GLIBC_", "CARGO_", "NPM_CONFIG_", "npm_config_", "LUA_INIT", "LUA_PATH", "LUA_CPATH"} {
		if strings.HasPrefix(name, p) && !harmless[name] {
			return true
		}
	}
	return false
}

// harmless lists variables that run and load nothing, despite a risky prefix (see meansMore).
var harmless = map[string]bool{
	"GIT_AUTHOR_NAME": true, "GIT_AUTHOR_EMAIL": true, "GIT_AUTHOR_DATE": true,
	"GIT_COMMITTER_NAME": true, "GIT_COMMITTER_EMAIL": true, "GIT_COMMITTER_DATE": true, "GIT_TERMINAL_PROMPT": true, "GIT_OPTIONAL_LOCKS": true,
	"PYTHONUNBUFFERED": true, "PYTHONDONTWRITEBYTECODE": true, "PYTHONHASHSEED": true, "PYTHONIOENCODING": true, "PYTHONUTF8": true,
	"CARGO_TERM_COLOR": true, "CARGO_INCREMENTAL": true,
}

// loads reports whether a variable may name a program, or options that lead to one. Common
// command lines set such variables, so they do not cause a denial. An empty value is harmless.
func loads(name, value string) bool {
	if value == "" {
		return false
	}
	switch name {
	case "CC", "CXX", "CPP", "LD", "AR", "AS", "NM", "RANLIB", "STRIP", "OBJCOPY", "OBJDUMP", "FC", "LINK", "LEX", "YACC", "GO", "PYTHON", "PERL", "INSTALL", "TSC", "JAVA_HOME", "GOROOT",
		"GOFLAGS", "GOENV", "GOTOOLCHAIN", "GOTOOLDIR", "GOPATH", "GOPROXY", "GONOSUMDB", "GONOSUMCHECK", "GOSUMDB", "GOINSECURE", "CLASSPATH", "NVM_DIR", "PREFIX", "DESTDIR", "LESS", "MORE":
		return name != "PREFIX" && name != "DESTDIR"
	}
	for _, s := range []string{"FLAGS", "_OPTIONS", "_OPTS", "_ARGS", "_COMMAND", "_CMD", "_WRAPPER", "_RSH", "_SHELL", "_PRELOAD", "_PATH", "_PLUGIN", "_PLUGINS", "_CONFIG", "_HOME", "_PROGRAM", "_LAUNCHER", "_LOADER"} {
		if strings.HasSuffix(name, s) {
			return true
		}
	}
	return false
}

// said reports whether a variable is known to change only output and behavior of programs, and not to name other
// programs. It assumes this of every variable whose name has no capital letters.
func said(name string) bool {
	switch name {
	case "NODE_ENV", "BABEL_ENV", "CI", "DEBUG", "VERBOSE", "V", "Q", "TZ", "TERM", "LANG", "LANGUAGE", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE",
		"GOOS", "GOARCH", "GOARM", "GOAMD64", "CGO_ENABLED", "GO111MODULE", "GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG", "GOTRACEBACK", "GOEXPERIMENT", "GOWORK", "GOCACHE", "GOMODCACHE", "GOBIN", "GOTMPDIR",
		"PORT", "HOST", "ENVIRONMENT", "RAILS_ENV", "RACK_ENV", "APP_ENV", "RUST_LOG", "RUST_BACKTRACE", "LOG_LEVEL", "DEBIAN_FRONTEND", "PREFIX", "DESTDIR", "VERSION", "TARGET", "BUILD", "COVERAGE", "TEST", "SOURCE_DATE_EPOCH":
		return true
	}
	return harmless[name] || strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "TEST_") || name == strings.ToLower(name)
}
