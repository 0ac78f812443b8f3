// The words of X-ray.

import { words } from "./words.js";

words({
  xray_measuring: "Running the probes; this takes some seconds …", xray_drawing: "Drawing the report …", xray_report: "Report on {name}",
  level_ok: "ok", level_warning: "warning", level_fault: "fault", level_unknown: "unknown",
});
