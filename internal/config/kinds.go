package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/pattern"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// kinds are the checks of texts, by the tag kind. An error says what to write instead.
var kinds = map[string]func(string) error{
	"path":                     func(string) error { return nil },
	"host:port":                listenAddress,
	"origins":                  webOrigin,
	"directory":                absolutePath,
	"file":                     absolutePath,
	"rules":                    rule,
	"NAME=INPUT/OUTPUT":        price,
	"URL":                      baseURL,
	"off, adaptive, number":    thinking,
	"destinations":             destination,
	"patterns":                 glob,
	"names":                    like(`[A-Za-z0-9.-]{1,253}`, "use host names without a port, as holdfast.example, separated by commas"),
	"model name":               like(`.*\S.*`, "write a value that is not empty"),
	"local, host":              like(`.*\S.*`, "use local or host"),
	"native, claude, acp:NAME": like(`native|claude|acp:`+agentName, "use native, claude or acp:NAME"),
	"grants":                   like(`(field:)?[a-z0-9_]+`, "use names as web_search, mcp_servers or field:NAME"),
}

// like returns a check that a text as a whole matches a pattern.
func like(pattern, hint string) func(string) error {
	re := regexp.MustCompile(`^(?:` + pattern + `)$`)
	return func(s string) error {
		if !re.MatchString(s) {
			return errors.New(hint)
		}
		return nil
	}
}

func glob(s string) error {
	if strings.HasPrefix(s, "/") {
		return errors.New("use a path in the workspace, without a / at its beginning")
	}
	if _, err := pattern.Compile("config", s); err != nil || strings.Trim(s, "/.") == "" {
		return errors.New("use a pattern as node_modules, build/cache or **/*.o")
	}
	return nil
}

func listenAddress(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err == nil {
		n, perr := strconv.ParseUint(port, 10, 16)
		if perr == nil && strconv.FormatUint(n, 10) == port && !strings.ContainsAny(host, " /") {
			return nil
		}
	}
	return errors.New("use host:port, as 127.0.0.1:4100")
}

func webOrigin(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || s != u.Scheme+"://"+u.Host {
		return errors.New("use origins as https://holdfast.example, separated by commas")
	}
	return nil
}

func absolutePath(s string) error {
	if !filepath.IsAbs(s) || filepath.Clean(s) != s {
		return errors.New("use an absolute path without . and .. segments, // and a slash at the end")
	}
	return nil
}

func rule(s string) error {
	if err := policy.CheckRule(s); err != nil {
		return fmt.Errorf("%w; %s. Commas separate the rules of a list", err, holdfast.HintOf(err))
	}
	return nil
}

// price checks the form of a price setting: NAME=INPUT/OUTPUT, or with two more numbers, each from 0
// to a million.
func price(s string) error {
	wrong := errors.New("write dollars per million tokens as openai/my-model=0.5/1.5")
	name, value, ok := strings.Cut(s, "=")
	if n := strings.Count(value, "/"); !ok || name == "" || n != 1 && n != 3 {
		return wrong
	}
	for part := range strings.SplitSeq(value, "/") {
		if f, err := strconv.ParseFloat(part, 64); err != nil || !(f >= 0 && f <= 1e6) {
			return wrong
		}
	}
	return nil
}

func baseURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("use an address as https://models.example/v1, without user, query or fragment")
	}
	return nil
}

func thinking(s string) error {
	if s == "off" || s == "adaptive" {
		return nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err != nil || n < 1024 || n > 200_000 {
		return errors.New("use off, adaptive, or a number of tokens from 1024 to 200000")
	}
	return nil
}

func destination(s string) error {
	if _, err := check.ParseDestination(s); err != nil {
		return errors.New(holdfast.HintOf(err))
	}
	return nil
}
