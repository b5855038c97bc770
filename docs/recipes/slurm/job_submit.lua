-- A gate in Slurm's controller: every job that says what it trains is asked about before it is queued, however it was
-- submitted. It goes beside slurm.conf, with JobSubmitPlugins=lua in it.
--
-- The batch script says what it trains in a line of its own, the JSON of POST /estimate of `oomcast serve`:
--
--   #OOMCAST-JOB {"job": "hf:meta-llama/Llama-3.1-8B", "batch_size": 1, "seq_len": 4096, "precision": "amp-bf16"}
--
-- A job that asks for no type of GPU gets the smallest one that holds it; one that asks for a type is checked against
-- that. What does not fit is refused with the reason. The controller waits while it asks, so it asks briefly: where
-- there is no answer by then, the job is admitted and the log says so. Names only: the service runs nobody's code.

-- The cluster's GPUs, the smallest first: Slurm's type, and oomcast's name.
local GPUS = { { "rtx3090", "rtx-3090" }, { "a100_40gb", "a100-40gb" }, { "a100_80gb", "a100-80gb" } }
local SERVICE = "http://127.0.0.1:8642"
local TOKEN = nil -- of a service on another machine
local SECONDS = 2 -- for one question
local ADMITTED = "oomcast: %s; the job is admitted unasked"

local function ask(question, device)
  -- What a user wrote reaches curl through a file, never through a command line. The device comes last: it counts.
  local name = os.tmpname()
  local file = io.open(name, "w")
  if file == nil then return nil end
  file:write((question:gsub("}%s*$", ',"device":"' .. device .. '"}')))
  file:close()
  local token = TOKEN and ("-H 'Authorization: Bearer " .. TOKEN .. "' ") or ""
  local wait = string.format("'%s/estimate?wait=%d'", SERVICE, SECONDS)
  local pipe = io.popen("curl -s -m " .. (SECONDS + 1) .. " -w '\n%{http_code}' -H 'Content-Type: application/json' "
    .. token .. "--data-binary @" .. name .. " " .. wait)
  local said = pipe:read("*a")
  pipe:close()
  os.remove(name)
  local body, status = said:match("^(.*)\n(%d+)$")
  return body, tonumber(status)
end

local function verdict_on(question, device)
  local body, status = ask(question, device)
  if status == 200 then
    local verdict = body:match('"verdict":%s*"(%w+)"')
    local needed = tonumber(body:match('"least_capacity":%s*(%d+)') or 0)
    return verdict, string.format("on %s it needs at least %.2f GiB", device, needed / 2 ^ 30)
  elseif status == 400 or status == 422 then
    return "refused", (body:match('"error":%s*"(.-)"%s*[,}]') or body)
  end
  return nil, "the service " .. (status == 202 and "has not answered yet" or "cannot be reached")
end

-- What is asked for, like gres:gpu:rtx3090:4 or gpu:2: the type or nil, and how many GPUs on how many nodes.
local function asked_gpus(job_desc)
  local wanted = job_desc.tres_per_node or job_desc.gres or ""
  local nodes = tonumber(job_desc.min_nodes) or 1
  if nodes < 1 or nodes > 1000000 then nodes = 1 end -- Slurm's word for "not said" is a large number
  local count = wanted:match("gpu:%a[%w_.-]*:(%d+)$") or wanted:match("gpu:(%d+)$") or 1
  return wanted:match("gpu:(%a[%w_.-]*)"), tonumber(count), nodes
end

local function on_so_many(device, count, nodes)
  if nodes > 1 then return string.format("%dx%dx%s", nodes, count, device) end
  return count > 1 and string.format("%dx%s", count, device) or device
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  local question = (job_desc.script or ""):match("\n#OOMCAST%-JOB%s+({.-})%s*\n")
  if question == nil then return slurm.SUCCESS end
  local of_type, count, nodes = asked_gpus(job_desc)
  local reasons = {}
  for _, gpu in ipairs(GPUS) do
    local type, device = gpu[1], on_so_many(gpu[2], count, nodes)
    if of_type == nil or of_type == type then
      local verdict, reason = verdict_on(question, device)
      if verdict == nil then
        slurm.log_info(ADMITTED, reason)
        return slurm.SUCCESS
      elseif verdict == "refused" then
        slurm.log_user("oomcast: %s", reason)
        return slurm.ERROR
      elseif verdict ~= "oom" then
        if of_type == nil then
          job_desc.tres_per_node = string.format("gres:gpu:%s:%d", type, count)
          slurm.log_user("oomcast: it fits on %s", type)
        end
        return slurm.SUCCESS
      end
      reasons[#reasons + 1] = reason
    end
  end
  if #reasons == 0 then
    slurm.log_info(ADMITTED, "the GPU type " .. of_type .. " is not in GPUS")
    return slurm.SUCCESS
  end
  slurm.log_user("oomcast: refused, since the job does not fit: %s", table.concat(reasons, "; "))
  return slurm.ERROR
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end

return slurm.SUCCESS
