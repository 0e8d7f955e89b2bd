#include "load/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace quire::load {
namespace {

constexpr double kWidth = 560, kHeight = 220, kLeft = 56, kBottom = 28;
constexpr const char* kColours[] = {"#2563eb", "#d97706", "#059669", "#dc2626"};

struct Point {
  double x, y;
};
using Points = std::vector<Point>;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string short_number(double value) {
  if (value >= 100 || value == std::floor(value)) return fmt::format("{:.0f}", value);
  return value >= 1 ? fmt::format("{:.1f}", value) : fmt::format("{:.3g}", value);
}

// A line for each run; both axes from zero.
std::string plot(const std::string& title, const std::string& x_name,
                 const std::vector<Points>& lines) {
  double x_top = 0, y_top = 0;
  for (const Points& line : lines) {
    for (const Point& p : line) {
      x_top = std::max(x_top, p.x);
      y_top = std::max(y_top, p.y);
    }
  }
  if (x_top <= 0 || y_top <= 0) return "";
  const auto x_at = [&](double x) { return kLeft + x / x_top * (kWidth - kLeft - 8); };
  const auto y_at = [&](double y) {
    return kHeight - kBottom - y / y_top * (kHeight - kBottom - 8);
  };
  std::string svg = fmt::format("<figure><figcaption>{}</figcaption><svg viewBox=\"0 0 {} {}\">",
                                escaped(title), kWidth, kHeight);
  for (int i = 0; i <= 4; ++i) {
    const double x = x_top * i / 4, y = y_top * i / 4;
    svg += fmt::format("<line class=g x1={0:.1f} x2={1:.1f} y1={2:.1f} y2={2:.1f} />", kLeft,
                       kWidth - 8, y_at(y));
    svg += fmt::format("<text x={:.1f} y={:.1f} text-anchor=end>{}</text>", kLeft - 4, y_at(y) + 4,
                       short_number(y));
    svg += fmt::format("<text x={:.1f} y={:.1f} text-anchor=middle>{}{}</text>", x_at(x),
                       kHeight - 10, short_number(x), i == 4 ? " " + x_name : "");
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    svg += fmt::format("<polyline stroke=\"{}\" points=\"", kColours[i % std::size(kColours)]);
    for (const Point& p : lines[i]) svg += fmt::format("{:.1f},{:.1f} ", x_at(p.x), y_at(p.y));
    svg += "\"/>";
  }
  return svg + "</svg></figure>\n";
}

// Share of the samples that are at most x, in percent; a few hundred points, and the tail whole.
Points distribution(std::vector<double> samples) {
  constexpr std::size_t kPoints = 300;
  std::sort(samples.begin(), samples.end());
  Points points;
  const std::size_t n = samples.size();
  for (std::size_t i = 0; i < n; ++i) {
    const bool shown = i * kPoints / n != (i + 1) * kPoints / n || i + 20 > n;
    if (shown)
      points.push_back({samples[i], 100 * static_cast<double>(i + 1) / static_cast<double>(n)});
  }
  return points;
}

// By the second in which a request ended.
Points tokens_by_second(const std::vector<Record>& records) {
  std::map<int, double> seconds;
  for (const Record& r : records) seconds[static_cast<int>(r.end)] += r.output_tokens;
  Points points;
  for (const auto& [second, tokens] : seconds) points.push_back({second + 0.5, tokens});
  return points;
}

Points running(const std::vector<Record>& records) {
  std::vector<std::pair<double, int>> changes;
  for (const Record& r : records) {
    changes.emplace_back(r.sent, 1);
    changes.emplace_back(r.end, -1);
  }
  std::sort(changes.begin(), changes.end());
  Points points;
  int count = 0;
  const std::size_t step = changes.size() / 1000 + 1;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    count += changes[i].second;
    if (i % step == 0) points.push_back({changes[i].first, static_cast<double>(count)});
  }
  return points;
}

std::vector<Points> of_each(const std::vector<HtmlRun>& runs,
                            const std::function<Points(const HtmlRun&)>& points) {
  std::vector<Points> lines;
  for (const HtmlRun& run : runs) lines.push_back(points(run));
  return lines;
}

Points latencies(const HtmlRun& run, const std::function<double(const Record&)>& of) {
  std::vector<double> samples;
  for (const Record& r : run.records)
    if (r.outcome == Outcome::ok && r.first_token > 0) samples.push_back(1e3 * of(r));
  return distribution(std::move(samples));
}

Points gaps(const HtmlRun& run) {
  std::vector<double> samples;
  for (const Record& r : run.records)
    for (const float gap : r.gaps) samples.push_back(1e3 * static_cast<double>(gap));
  return distribution(std::move(samples));
}

constexpr const char* kHead =
    R"(<!doctype html><html lang=en><meta charset=utf-8><title>quire-load</title><style>
body{font:15px/1.5 system-ui,sans-serif;max-width:1180px;margin:2em auto;padding:0 1em;color:#111}
figure{display:inline-block;width:560px;max-width:100%;margin:0 8px 16px 0}figcaption{font-weight:600}
svg{width:100%}text{font-size:11px;fill:#555}.g{stroke:#ddd}polyline{fill:none;stroke-width:1.6}
pre{background:#f6f6f6;padding:1em;overflow:auto}td{padding:0 1em 0 0}
@media(prefers-color-scheme:dark){body{background:#111;color:#eee}pre{background:#1c1c1c}.g{stroke:#333}text{fill:#aaa}}
</style>
)";

}  // namespace

std::string html_report(const std::vector<HtmlRun>& runs,
                        const std::map<std::string, std::string>& settings) {
  std::string html = kHead;
  html += "<h1>quire-load</h1><table>";
  for (const auto& [name, value] : settings) {
    html += fmt::format("<tr><td>{}</td><td>{}</td></tr>", escaped(name), escaped(value));
  }
  html += "</table>\n";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    html += fmt::format("<h2 style=\"color:{}\">{}</h2><pre>{}</pre>\n",
                        kColours[i % std::size(kColours)], escaped(runs[i].name),
                        escaped(runs[i].report.table()));
  }
  html += plot("Time to first token, % of requests", "ms", of_each(runs, [](const HtmlRun& run) {
                 return latencies(run, [](const Record& r) { return r.first_token - r.due; });
               }));
  html += plot("End to end, % of requests", "ms", of_each(runs, [](const HtmlRun& run) {
                 return latencies(run, [](const Record& r) { return r.end - r.due; });
               }));
  html += plot("Between chunks, % of gaps", "ms", of_each(runs, gaps));
  html += plot("Output tokens of requests that ended in a second", "s",
               of_each(runs, [](const HtmlRun& run) { return tokens_by_second(run.records); }));
  html += plot("Requests under way", "s",
               of_each(runs, [](const HtmlRun& run) { return running(run.records); }));
  return html + "</html>\n";
}

}  // namespace quire::load
